CREATE INDEX conversations_by_last ON conversations (last, conversation_id);
CREATE INDEX turns_by_conversation ON turns (conversation_id, turn_id);
CREATE TABLE conversations (
    conversation_id TEXT PRIMARY KEY,
    started TEXT NOT NULL,
    last TEXT NOT NULL,
    title TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE long_worded (turn INTEGER PRIMARY KEY) STRICT;
CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    tool_calls TEXT NOT NULL,
    tool_results TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    metadata TEXT NOT NULL
) STRICT;
CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE) STRICT;
CREATE VIRTUAL TABLE turn_tokens USING fts5(
    tokens, content='', tokenize="ascii tokenchars '_'"
);
CREATE VIRTUAL TABLE word_trigrams USING fts5(
    word, content='', detail=none, tokenize='trigram case_sensitive 1'
);
PRAGMA application_id = 1129070935;
PRAGMA user_version = 1;
