*Ä¼@EHB
float8e5m2