package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxSuccessorServers bounds Successor.Servers.
const MaxSuccessorServers = 4

// Successor is the management cluster that the host follows to once the present one no longer
// knows it or can't be reached for a while. The host never enrols there: the successor must
// know its key.
type Successor struct {
	// Servers are the server URLs of the successor. The agent tries them in turn.
	Servers []string `json:"servers"`
	// TrustBundle has the CA certificates of these servers, PEM. It counts for no other server.
	TrustBundle string `json:"trustBundle"`
}

// Digest identifies a successor by 16 hex digits.
func (s *Successor) Digest() string {
	sum := sha256.Sum256([]byte(strings.Join(s.Servers, " ") + "\n" + s.TrustBundle))
	return hex.EncodeToString(sum[:8])
}

// SuccessorReport says whether the host reaches Desired.Successor. An empty one means that the
// host has no successor.
type SuccessorReport struct {
	// Digest is that of the successor.
	Digest string `json:"digest,omitempty"`
	// Reached: a server of the successor has answered, which need not know the host yet.
	Reached bool `json:"reached,omitempty"`
	// Message says why it was not reached, in at most MaxMessageBytes.
	Message string `json:"message,omitempty"`
}
