"""Settings of Spark that tests share."""

# Spark compiles code for each stage, which takes longer than to process few rows
NO_GENERATED_CODE = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
