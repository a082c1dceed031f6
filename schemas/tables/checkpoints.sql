-- about: a partition at one moment, as one of Kafka's tools printed it
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster at that moment',
  taken_at TIMESTAMP NOT NULL COMMENT 'When the tool was run: --at, or what the name of the file or zookeeper-shell says',
  source STRING NOT NULL COMMENT 'describe (kafka-topics), zookeeper (zookeeper-shell), metadata_shell, reassign (kafka-reassign-partitions) or quorum (kafka-metadata-quorum)',
  file STRING NOT NULL COMMENT 'File with the output of the tool',
  line INT NOT NULL COMMENT 'Line of that file',
  topic STRING NOT NULL COMMENT 'Topic name; of a quorum __cluster_metadata',
  partition INT NOT NULL COMMENT 'Partition id',
  leader INT COMMENT 'Broker id of the leader; -1 = none',
  isr ARRAY<INT> COMMENT 'In-sync replicas; compare as sets',
  replicas ARRAY<INT> COMMENT 'Assigned replicas (RS); voters of a quorum',
  adding_replicas ARRAY<INT> COMMENT 'Replicas that a running reassignment adds; null: the form has no such column',
  removing_replicas ARRAY<INT> COMMENT 'Replicas that it removes',
  leader_epoch INT COMMENT 'Leader epoch',
  partition_epoch INT COMMENT 'Partition epoch; dataVersion of zookeeper-shell',
  high_watermark BIGINT COMMENT 'High watermark of the metadata log; of a quorum only',
  observers ARRAY<INT> COMMENT 'Who reads the metadata log and has no vote; of a quorum only',
  lag BIGINT COMMENT 'Records that the slowest voter is behind the leader; of a quorum only',
  cluster_id STRING COMMENT 'Cluster id that the status of a quorum names',
  differs ARRAY<STRING> NOT NULL COMMENT 'Columns in which no interval of partition_timeline within five seconds agrees; partition: the logs do not know it then; empty: one does, or the logs end before; of a quorum: leader (another one of that epoch, by controllers) or leader_epoch (a later one had begun)',
  logged STRING COMMENT 'What the nearest interval says of them; null: the logs do not know the partition then',
  record_id STRING COMMENT 'Record that began the nearest interval'
) USING delta
LOCATION '{location}'
COMMENT 'What kafka-topics --describe and its like said, and whether the timelines agree'
