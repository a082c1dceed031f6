-- about: a time in which a broker did not serve
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  broker INT COMMENT 'Broker; null: no broker was left',
  since TIMESTAMP NOT NULL COMMENT 'First line that shows it, of the broker or the controller; of a lost broker the controller notices it some seconds late',
  until TIMESTAMP COMMENT 'When it served again: registered, in KRaft unfenced; null: not in these logs',
  down_until TIMESTAMP COMMENT 'Up to when lines show that it did not serve: until, where a line shows its return; earlier, where lines only show that it had returned by then; null where until is null',
  how STRING NOT NULL COMMENT 'shut_down: it was asked to stop; crashed: its process ended and nothing asked it to; session_lost: its session ended (KRaft: fenced), and nothing shows that its process did; broke_down: it gave up by itself (log directories, an error at the start); absent: a controller that had just started did not find it, and no line shows since when; first_start: these logs begin with its start',
  starting_at TIMESTAMP COMMENT 'Its last start within the outage; null: its process was not started, or no log shows it',
  all_since TIMESTAMP COMMENT 'Begin of the outage of all brokers that this one is a part of; null: others served on',
  stop_asked BOOLEAN COMMENT 'It was asked to stop at some moment of the outage; null: a record fences it, as it does one that is lost or one that asked to stop',
  evidence ARRAY<STRING> NOT NULL COMMENT 'record_id of the records that show it'
) USING delta
LOCATION '{location}'
COMMENT 'Which broker was down, when, and how it stopped'
