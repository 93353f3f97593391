package forwarder

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Document is the name of the document with the Config in the state directory.
const Document = "endpoint-local.json"

// loopback is the only address that is ever listened on.
const loopback = "127.0.0.1"

// Config is what to forward.
type Config struct {
	// Host is the name of the control plane endpoint, which API servers' certificates
	// cover.
	Host string `json:"host"`
	// Port is the endpoint's, and where the process listens on the loopback address.
	Port int32 `json:"port"`
	// Backends are the API servers of other hosts, IP:port.
	Backends []string `json:"backends,omitempty"`
}

// Address is where the process listens.
func (c Config) Address() string { return net.JoinHostPort(loopback, strconv.Itoa(int(c.Port))) }

// load reads the Config in a state directory.
func load(dir string) (Config, error) {
	var config Config
	text, err := os.ReadFile(filepath.Join(dir, Document))
	if err != nil {
		return config, fmt.Errorf("reading what to forward: %w", err)
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return config, fmt.Errorf("decoding %s: %w", Document, err)
	}
	return config, nil
}
