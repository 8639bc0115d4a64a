"""What is measured against rivals, in the same run."""
