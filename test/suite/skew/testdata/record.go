package client

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"
)

// recordTraffic is the environment variable with the file that exchanges are appended to, one a line.
const recordTraffic = "RECORD_TRAFFIC"

var recording sync.Mutex

// recorded records an exchange. It is added to the agent's client of v0.1.0 when traffic is recorded.
func recorded(response *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return response, err
	}
	request := response.Request
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	asked := map[string]any{"method": request.Method, "url": request.URL.RequestURI(), "header": one(request.Header)}
	if sent, err := request.GetBody(); err == nil {
		if raw, err := io.ReadAll(sent); err == nil && len(raw) > 0 {
			asked["body"] = json.RawMessage(raw)
		}
	}
	answered := map[string]any{"status": response.StatusCode, "header": one(response.Header)}
	switch {
	case len(body) == 0:
	case json.Valid(body):
		answered["body"] = json.RawMessage(body)
	default:
		answered["text"] = string(body)
	}
	line, err := json.Marshal(map[string]any{"request": asked, "answer": answered})
	if err != nil {
		return nil, err
	}
	recording.Lock()
	defer recording.Unlock()
	file, err := os.OpenFile(os.Getenv(recordTraffic), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.Write(append(line, '\n'))
	if closed := file.Close(); err == nil {
		err = closed
	}
	return response, err
}

// one returns the header with one value for each name.
func one(h http.Header) map[string]string {
	values := map[string]string{}
	for name := range h {
		if name != "Date" && name != "Content-Length" {
			values[name] = h.Get(name)
		}
	}
	return values
}
