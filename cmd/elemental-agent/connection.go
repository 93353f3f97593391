package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
)

// connectionRecord is where "run" tells "status" how the connection is.
type connectionRecord struct {
	path string
	log  *slog.Logger
}

func connectionFile(log *slog.Logger) connectionRecord {
	return connectionRecord{path: filepath.Join(host.RuntimeDir, "connection.json"), log: log}
}

func (r connectionRecord) write(connection agent.Connection) {
	data, err := json.Marshal(connection)
	if err == nil {
		err = durable.WriteFile(r.path, data, 0o600)
	}
	if err != nil {
		r.log.Warn("Could not note the connection for the status command", "error", err)
	}
}

// read returns nil when no agent has run since the boot.
func (r connectionRecord) read() *agent.Connection {
	data, err := os.ReadFile(r.path)
	if err != nil {
		return nil
	}
	connection := &agent.Connection{}
	if json.Unmarshal(data, connection) != nil {
		return nil
	}
	return connection
}
