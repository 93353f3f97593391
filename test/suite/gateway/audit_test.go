package gateway

import (
	"bytes"
	"encoding/json"
	"os"

	. "github.com/onsi/gomega"
)

// auditEvent is what tests read of an event of an API server's audit log.
type auditEvent struct {
	AuditID    string `json:"auditID"`
	RequestURI string `json:"requestURI"`
	Stage      string `json:"stage"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ImpersonatedUser struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"impersonatedUser"`
}

// childEvents returns the finished requests in the audit log of the workload cluster.
func (r *rig) childEvents() []auditEvent {
	text, err := os.ReadFile(r.childLog)
	r.Expect(err).NotTo(HaveOccurred())
	var events []auditEvent
	for line := range bytes.Lines(text) {
		var e auditEvent
		if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &e) == nil && e.Stage == "ResponseComplete" {
			events = append(events, e)
		}
	}
	return events
}
