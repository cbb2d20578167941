"""Speed and memory of the gate, side by side with no proxy at all and with nginx, in one run."""
