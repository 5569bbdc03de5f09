"""Dynamic Yannakakis (DESIGN §5; papers 1 and 4): ``layout`` decides which relations to keep, ``block`` maintains them
bottom-up,
``delta`` enumerates what a change does to the output, ``enumerate`` reads the output top-down."""
