package protocol

// LogRequest asks for the log of the last operation of a type.
type LogRequest struct {
	// ID of the request. The agent answers once for each ID, by PathLog.
	ID        string        `json:"id"`
	Operation OperationType `json:"operation"`
}

// HostLog is the answer to a LogRequest.
type HostLog struct {
	// Operation, OperationID and State are those of the operation. OperationID is blank if the
	// host has no log of the type.
	Operation   OperationType  `json:"operation"`
	OperationID string         `json:"operationID,omitempty"`
	State       OperationState `json:"state,omitempty"`
	// Text has at most MaxLogBytes, and no secrets that the agent recognizes.
	Text []byte `json:"text,omitempty"`
	// Redactions is how many secrets were left out, and CutBytes how much of the middle.
	Redactions int   `json:"redactions,omitempty"`
	CutBytes   int64 `json:"cutBytes,omitempty"`
}
