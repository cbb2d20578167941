"""What several gates share through one database: keys, what they have used, and what was learned of models.

Nothing here is imported, and so nothing is paid, while sharing is switched off. The database is the archive's
(`archive.database`), with its tables (`archive.schema`) and migrations.
"""
