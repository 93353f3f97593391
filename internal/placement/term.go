package placement

import (
	"fmt"
	"strings"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/preflight"
)

// Term is the first condition that a host does not meet.
type Term struct {
	// Reason is one of those that Explain counts.
	Reason string
	// Field of the ElementalMachine's spec that the host does not match; blank for other
	// reasons.
	Field string
	// Message says what it is about this host; blank if the reason says everything.
	Message string
}

// HostNameField is the field of a Term for a machine with a pinned host. Other fields are
// those of package selector.
const HostNameField = "hostName"

// FirstTerm is Available with what a person needs to change the answer. It costs more than
// Available. ok is true if the host is available.
func (c Constraints) FirstTerm(host *infrav1.ElementalHost) (_ Term, ok bool) {
	reason, ok := c.Available(host)
	if ok {
		return Term{}, true
	}
	term := Term{Reason: reason}
	switch reason {
	case NotMatching:
		if c.HostName != "" && host.Name != c.HostName {
			term.Field, term.Message = HostNameField, "spec.hostName is "+c.HostName
		} else {
			unmet := c.Selector.Why(host)
			term.Field, term.Message = string(unmet.Field), unmet.Message
		}
	case WrongFailureDomain:
		term.Message = fmt.Sprintf("wanted %s=%s, the host has %s", c.FailureDomainLabel, c.FailureDomain, orNone(host.Labels[c.FailureDomainLabel]))
	case InventoryUnknown:
		term.Message = "the expression reads the inventory, and the agent has not reported it"
	case NotEvaluated:
	case infrav1.NotPreparedReason:
		term.Message = strings.Join(preflight.Messages(c.findings(host)), "; ")
	default:
		if verdict := c.verdict(host); verdict.Reason() == reason {
			term.Message = verdict.Message()
		}
	}
	return term, false
}

func orNone(value string) string {
	if value == "" {
		return "no such label"
	}
	return value
}
