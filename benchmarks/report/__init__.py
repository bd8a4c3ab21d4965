"""What becomes of the figures: tables, pictures, comparisons with an earlier run; and how long a run takes."""
