"""Many runs from one file: `expand` lists them, `running` runs several at a time, `report` sums up."""
