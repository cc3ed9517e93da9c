"""The paper's figures: experiments in the plane, and their drawings."""
