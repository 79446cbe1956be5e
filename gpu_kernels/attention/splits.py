"""Into how many parts the tokens of a sequence are split, so that a small batch still fills the GPU."""

MAX_SPLITS = 64

# Work of a program besides its tiles, in tiles: start, fetch the query, wait for its first tile, write its part.
PROGRAM_TILES = 2.0
# Cost of one more part for each program: its partial result is written and read again, which is about 4 bytes
# twice a value of an accumulator as large as the query. A tile is several times that, and the copies overlap.
SPLIT_TILES = 0.25


def num_kv_splits(num_programs: int, num_tiles: int, slots: int) -> int:
    """The number of parts, from 1 to MAX_SPLITS, that takes the least time; the fewer of two with equal time.

    Programs run in rounds of `slots`, and a round lasts as long as its longest program:

        time(s) = ceil(num_programs * s / slots) * (ceil(num_tiles / s) + PROGRAM_TILES) + (s > 1) * s * SPLIT_TILES

    num_programs  programs without a split: batch * heads' blocks
    num_tiles     of tokens in the longest sequence
    slots         programs that the GPU holds at once: multiprocessors * programs a multiprocessor
    """
    if num_programs < 1 or slots < 1:
        raise ValueError(f"num_kv_splits: got {num_programs} programs over {slots} slots, expected at least one")

    def time(splits: int) -> float:
        rounds = -(-num_programs * splits // slots)
        tiles = -(-num_tiles // splits)
        return rounds * (tiles + PROGRAM_TILES) + (splits > 1) * splits * SPLIT_TILES

    return min(range(1, max(1, min(MAX_SPLITS, num_tiles)) + 1), key=time)
