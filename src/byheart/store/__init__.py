"""The knowledge base's one SQLite database: epochs, migrations, documents."""
