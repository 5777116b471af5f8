"""What lies in reports/: the folders of runs, what repeated runs showed of noise, and what is kept beside captures."""
