COLOUR(black, 0, 0, 0)
COLOUR(red, 255, 0, 0)
COLOUR(green, 0, 128, 0)
COLOUR(sky, 135, 206, 235)
