package enrolment

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// AgentConfig is the part of the agent's configuration file that an enrolment needs.
type AgentConfig struct {
	// Servers are server URLs.
	Servers []string `json:"servers,omitempty"`
	// TrustBundle contains the CA certificates (PEM) that the agent trusts.
	TrustBundle string `json:"trustBundle,omitempty"`
	// Token is the plain registration token.
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

// DecodeAgentConfig decodes a configuration file.
func DecodeAgentConfig(text []byte) (AgentConfig, error) {
	var c AgentConfig
	if err := yaml.Unmarshal(text, &c); err != nil {
		return AgentConfig{}, fmt.Errorf("decoding agent configuration: %w", err)
	}
	return c, nil
}
