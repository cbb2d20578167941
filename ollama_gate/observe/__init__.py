"""What the gate shows of itself: metrics and one log line a request. Neither ever holds prompt text."""
