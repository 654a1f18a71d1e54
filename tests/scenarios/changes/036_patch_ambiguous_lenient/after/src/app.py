import sys


def start():
    print('hello')
    return 0


if __name__ == '__main__':
    sys.exit(main())
