"""What filters open of a tree that grows, and what a rewrite of some files would change."""
