package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
)

// connectionRecord is where "run" writes the status of the connection for "status".
type connectionRecord struct {
	path string
	log  *slog.Logger
}

func connectionFile(log *slog.Logger) connectionRecord {
	return connectionRecord{path: filepath.Join(linux.RuntimeDir, "connection.json"), log: log}
}

func (r connectionRecord) write(status connection.Status) {
	data, err := json.Marshal(status)
	if err == nil {
		err = durable.WriteFile(r.path, data, 0o600)
	}
	if err != nil {
		r.log.Warn("Could not write the status of the connection for the status command", "error", err)
	}
}

// read returns nil if no agent has run since the boot.
func (r connectionRecord) read() *connection.Status {
	data, err := os.ReadFile(r.path)
	if err != nil {
		return nil
	}
	status := &connection.Status{}
	if json.Unmarshal(data, status) != nil {
		return nil
	}
	return status
}
