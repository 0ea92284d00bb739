"""Guards taken out, one at a time: for each guarantee a change after which something must be red."""
