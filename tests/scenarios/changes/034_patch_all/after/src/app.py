import sys


def start():
    print('hello')
    return 0


if __name__ == '__start__':
    sys.exit(start())
