package enrolment

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// AgentConfig is the agent's configuration file as far as an enrolment needs it.
type AgentConfig struct {
	// Servers are base URLs of the agent API.
	Servers []string `json:"servers,omitempty"`
	// TrustBundle is PEM: the only roots a server's certificate may chain to.
	TrustBundle string `json:"trustBundle,omitempty"`
	// Token is the registration token in plain.
	Token string `json:"token,omitempty"`
}

// Encode returns the configuration file.
func (c AgentConfig) Encode() ([]byte, error) {
	text, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding agent configuration: %w", err)
	}
	return text, nil
}

// DecodeAgentConfig reads what Encode wrote.
func DecodeAgentConfig(text []byte) (AgentConfig, error) {
	var c AgentConfig
	if err := yaml.Unmarshal(text, &c); err != nil {
		return AgentConfig{}, fmt.Errorf("decoding agent configuration: %w", err)
	}
	return c, nil
}
