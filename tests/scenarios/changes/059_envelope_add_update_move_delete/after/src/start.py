import sys


def main():
    print('hi')
    return 0


if __name__ == '__main__':
    sys.exit(main())
