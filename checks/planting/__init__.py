"""Plants faults, one at a time, in a copy of the project and reports which test run finds each."""
