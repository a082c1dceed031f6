-- about: a time in which a broker did not serve
-- derived: yes
CREATE TABLE IF NOT EXISTS {table} (
  cluster STRING NOT NULL COMMENT 'Cluster',
  incarnation INT NOT NULL COMMENT 'Incarnation of the cluster',
  broker INT COMMENT 'Broker; null: no broker was left',
  since TIMESTAMP NOT NULL COMMENT 'First sign of it, by its own log or by the controller''s',
  until TIMESTAMP COMMENT 'When it served again: registered, in KRaft unfenced; null: not in these logs',
  down_until TIMESTAMP COMMENT 'Up to when lines show that it did not serve: until, where they tell when it came back; earlier, where they only show that it had come back by then; null where until is null',
  how STRING NOT NULL COMMENT 'shut_down: it was told to stop; crashed: its process ended and nothing told it to; session_lost: its session ended (KRaft: fenced), and nothing shows that its process did; broke_down: it gave up by itself (log directories, an error at the start); absent: a controller that had just started did not find it, nobody tells since when; first_start: these logs begin with its start',
  starting_at TIMESTAMP COMMENT 'Its last start within the outage; null: its process was not started, or no log tells',
  all_since TIMESTAMP COMMENT 'Begin of the outage of all brokers that this one is a part of; null: others served on',
  stop_asked BOOLEAN COMMENT 'Somebody told it to stop, at whatever moment of the outage; null: a record fences it, as it does one that is lost or one that asked to stop',
  evidence ARRAY<STRING> NOT NULL COMMENT 'record_id of the records that tell it'
) USING delta
LOCATION '{location}'
COMMENT 'Which broker was gone, when, and how it went'
