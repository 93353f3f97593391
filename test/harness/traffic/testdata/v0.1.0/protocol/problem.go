package protocol

// Problem is an error, RFC 9457 (application/problem+json).
type Problem struct {
	// Type is one of the Problem… constants, or "about:blank".
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Problem types that an agent handles. It logs all others and retries.
const (
	// ProblemUnknownHost: the key belongs to no host. The agent keeps its key, runs
	// and resets nothing, and retries. It may enrol again.
	ProblemUnknownHost = "urn:elemental:unknown-host"
	// ProblemRevoked: the host was rejected.
	ProblemRevoked = "urn:elemental:revoked"
	// ProblemTokenRefused: the token is unknown, expired or used up.
	ProblemTokenRefused = "urn:elemental:token-refused"
	// ProblemNoOperation: the host is not, or no longer, to run this operation.
	ProblemNoOperation = "urn:elemental:no-operation"
	// ProblemStaleGeneration: the key or its generation was replaced, possibly by a copy
	// of the host.
	ProblemStaleGeneration = "urn:elemental:stale-generation"
	// ProblemLocked: two machines use the key. An administrator has to unlock the host.
	ProblemLocked = "urn:elemental:locked"
)
