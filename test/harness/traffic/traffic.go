// Package traffic has requests of agents and answers of managers as v0.1.0 sent them.
package traffic

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
)

// Folder has the recordings, relative to the folder of this package.
const Folder = "testdata/v0.1.0"

//go:embed testdata/v0.1.0/*.json
var recordings embed.FS

// Exchange is a request of an agent and the manager's answer.
type Exchange struct {
	Request Request `json:"request"`
	Answer  Answer  `json:"answer"`
}

// Request is a request of an agent.
type Request struct {
	Method string `json:"method"`
	// URL has the path and the query.
	URL    string            `json:"url"`
	Header map[string]string `json:"header"`
	Body   json.RawMessage   `json:"body,omitempty"`
}

// Answer is a manager's answer.
type Answer struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header"`
	Body   json.RawMessage   `json:"body,omitempty"`
	// Text is a body that is no JSON.
	Text string `json:"text,omitempty"`
}

// Read returns the exchange with that name.
func Read(name string) (Exchange, error) {
	var e Exchange
	raw, err := recordings.ReadFile(path.Join(Folder, name+".json"))
	if err != nil {
		return e, fmt.Errorf("reading recorded traffic: %w", err)
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, fmt.Errorf("decoding the recorded exchange %s: %w", name, err)
	}
	return e, nil
}

// ServeHTTP implements http.Handler. It answers any request with the recorded answer.
func (a Answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for name, value := range a.Header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.Status)
	body := a.Body
	if a.Text != "" {
		body = []byte(a.Text)
	}
	_, _ = w.Write(body)
}
