"""Many environments side by side, behind Gymnasium's vector interface."""
