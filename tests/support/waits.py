"""The bound of waits that only guard against a hang."""

# A slow or busy machine needs much less. It is below the 600 s per test, so that a hang fails with the test's message.
WAIT_S = 300.0
