"""The data of the experiments: found or downloaded, verified, split and scaled."""
