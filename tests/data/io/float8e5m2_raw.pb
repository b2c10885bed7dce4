B
float8e5m2Jļ@EH