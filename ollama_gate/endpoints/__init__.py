"""What the gate answers by itself: about itself (`own`), about models (`shown`) and what agents count (`v1`)."""
