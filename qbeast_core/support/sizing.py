"""Sizes at which work is split, joined or cached. Tests make them small to reach the cases of large tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizing:
    """Thresholds of a process."""

    # Rows per data file and per page, which also depend on the size of a row.
    min_file_rows: int = 1 << 16
    max_file_rows: int = 3 << 17
    min_page_rows: int = 128

    # Minimum rows of a band: a row group with the rows of one range of weights.
    min_band_rows: int = 1 << 9

    # A file with fewer rows is small: optimize joins it. A write of several files makes larger ones.
    small_file_rows: int = 1 << 15

    # What a file costs, in rows: each filter or sample that opens it, for its page directory, and every read, for its
    # entry in the log and its part of the plan.
    opened_file_rows: int = 192
    listed_file_rows: int = 40

    # A value up to this size fits into a Parquet page, whose size is a signed 32-bit number.
    max_value_bytes: int = (1 << 31) - (1 << 20)

    # Rows per chunk of arrays: they fit the caches of the processor, and the work outweighs the overhead of a call.
    chunk_rows: int = 1 << 16

    # Rows of a file that `check` reads at once.
    checked_rows: int = 1 << 18

    # Sample to build a tree from: with 50 million rows, the error for a cube of 16,384 rows is about 5 %.
    domain_rows: int = 1 << 20
    domain_bytes: int = 64 << 20

    # A tree with more cubes gets a larger cube size at the next append.
    max_cubes: int = 16_384

    # Maximum number of possible keys for which an array has an entry each, of nodes to group and of children to find.
    # Others are sorted and searched, which takes several times as long.
    dense_keys: int = 1 << 16
    max_lookup_cells: int = 1 << 22

    # Maximum number of files of a write whose numbers have 16 bits, at most 65,536: they are sorted by counting.
    max_counted_files: int = 1 << 16

    # The choice of encodings: minimum bytes of rows for a trial of compression, which takes longer than it saves with
    # fewer; bytes of the values of a column that it looks at, and of the columns of one trial.
    min_trial_bytes: int = 2 << 20
    sample_bytes: int = 16 << 20
    trial_bytes: int = 64 << 20

    # Stored bytes per task of a read, and of pages that are decoded at once.
    task_bytes: int = 64 << 20
    batch_bytes: int = 64 << 20

    # Minimum number of pages of a read to search pages that match by the columns of its filter.
    min_searched_pages: int = 128

    # A local read that searches tries some pages first. It stops if more than this share of them match.
    max_matching: float = 0.25

    # Maximum size of a file of an object store that is read by page even if all of its pages are needed.
    small_object_bytes: int = 4 << 20

    # Maximum size of a file of an object store that is read in one request, with its page directory.
    whole_file_bytes: int = 64 << 10

    # Files whose page directories are read at once and kept in memory.
    tails_at_once: int = 512

    # Maximum number of files of a query that is read in slices: each slice reads the footers of the files before it.
    max_sliced_sources: int = 64

    # Sizes of a deletion vector, in bytes and rows, up to which its descriptor in the log is trusted with memory.
    trusted_vector_bytes: int = 1 << 20
    trusted_vector_rows: int = 1 << 20

    # Maximum bytes of the log of an object store that is copied to a local disk to be read.
    max_copied_log_bytes: int = 256 << 20

    # Maximum share of the memory of the machine, or of its cgroup, for cached tables.
    cache_share: float = 1 / 16

    # Frames grow by chunks; more than these, or less than these bytes, are copied together.
    max_chunks: int = 32
    small_frame_bytes: int = 1 << 20

    # Minimum number of files of a checkpoint to read it by a plan file. Files of one part of its making, of a row
    # group, of a batch of row groups whose bounds are compared, and of a part of an operation on all files. Maximum
    # bytes of all plan files on the machine.
    many_files: int = 5_000
    plan_chunk_files: int = 1 << 16
    plan_group_files: int = 2048
    plan_batch_files: int = 1 << 15
    plan_part_files: int = 1 << 14
    plan_cache_bytes: int = 16 << 30

    # Maximum share of the memory of the machine for the metadata of files that an operation reads at once.
    listed_share: float = 0.5

    # Maximum bytes of the `blocks` tags of files that are decoded in Python. More are decoded in queries.
    few_tag_bytes: int = 1 << 17

    # Files whose tags are decoded by one thread.
    slice_files: int = 2_500

    # Maximum number of files to cache the bounds of columns: for few files, the query costs more than the work.
    max_cached_files: int = 1_000

    # Minimum number of files to cache counts of keys: fewer are counted faster than looked up.
    min_cached_files: int = 16

    # From this many groups on, parts of sums are merged as they arrive: each may have all groups.
    min_merged_groups: int = 1 << 16

    # Maximum number of texts that are joined in Python. More are exported with pyarrow, which takes longer to load.
    few_texts: int = 1_000

    # Maximum length of a condition that is read without sqlglot, which has limits for long ones.
    max_plain_characters: int = 1_000

    # Maximum number and bytes of the commits of a log, or of its copy, that is read without `deltalake`.
    max_short_commits: int = 100
    max_short_bytes: int = 1 << 20

    # Maximum number of frames of a query: with a thousand it takes half a second, with five thousand 17.
    max_query_parts: int = 64

    # Maximum bytes of removed and added rows that are kept to find equal ones: more are read again.
    kept_change_bytes: int = 64 << 20

    # Changed rows of a task that writes files of the change data feed.
    feed_task_rows: int = 1 << 20

    # Approximate rows of the first round of an estimate, which estimates the variance of the answers. Fewer rows give
    # too uncertain a fraction for the next round; more cost bytes where a small sample is enough.
    pilot_rows: int = 20_000

    # Maximum number of different keys of a merge that are all compared with the bounds of files.
    listed_keys: int = 1 << 12

    # Share of the buffer that a round of shuffled rows is planned to fill, without room for temporary files.
    filled_share: float = 0.75

    # Rows for the shares and bytes of advice.
    advised_rows: int = 1 << 17

    # Rows of all simulated tables that advice keeps, and files and bytes that a hint of a plan may read.
    kept_trial_rows: int = 1 << 22
    hint_files: int = 64
    hint_bytes: int = 8 << 20

    # Number of sampled rows whose keys are enough to estimate a variance, if none of them is heavy. Groups with fewer
    # rows among them use all their keys.
    part_rows: int = 1 << 16
    min_group_rows: int = 2_000

    # Groups with a smaller share of the rows do not decide how much an estimate reads.
    deciding_share: float = 0.001

    # Rows of texts whose kinds of values are tried for their columns: other kinds cannot be those of all values. Rows
    # per row group of texts, and bytes of a file that are copied at once.
    inferred_rows: int = 1_000
    text_group_rows: int = 1 << 16
    copied_bytes: int = 4 << 20

    # Rows per spilled part, and bytes that each of the parts written at once buffers.
    min_part_rows: int = 64
    min_slice_bytes: int = 1 << 14

    # Memory of a call that moves rows: the minimum that it may be given, of the rows of a file for which another writer
    # is worth it, and the limits of a batch.
    min_memory_bytes: int = 4 << 20
    min_load_bytes: int = 20 << 20
    min_moved_bytes: int = 1 << 17
    max_moved_bytes: int = 64 << 20

    # Bytes per file of the change data feed.
    feed_file_bytes: int = 64 << 20

    # Seconds without a sign of life, after which files without a log are not a table in creation.
    quiet_s: float = 10.0

    # A Spark task: rows of its sample, bytes per bucket of keys of a merge, per pack of a shuffle and per batch of
    # packs, per batch of a data source, and of a partition before its files are written.
    min_sample_rows: int = 1 << 15
    bucket_bytes: int = 64 << 20
    pack_bytes: int = 16 << 20
    pack_batch_bytes: int = 8 << 20
    source_batch_bytes: int = 32 << 20
    max_partition_bytes: int = 256 << 20


_SIZING = Sizing()


def sizing() -> Sizing:
    """Return the thresholds of this process."""
    return _SIZING
