import sys


def main():
    print('hi')
    return 1


if __name__ == '__main__':
    sys.exit(main())
