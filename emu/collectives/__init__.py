"""Who sends what to whom, after what: collectives of training as lists of dependent transfers between ranks. Pure."""
