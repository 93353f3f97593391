package main

import (
	"testing"

	"sigs.k8s.io/yaml"
)

func TestKeepConntrackMax(t *testing.T) {
	for name, config := range map[string]string{
		"as kubeadm writes it": "kind: KubeProxyConfiguration\nconntrack: {maxPerCore: null, min: 5}\n",
		"without the part":     "kind: KubeProxyConfiguration\n",
		"with a value":         "kind: KubeProxyConfiguration\nconntrack: {maxPerCore: 7}\n",
	} {
		t.Run(name, func(t *testing.T) {
			changed, err := keepConntrackMax([]byte(config))
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Kind      string
				Conntrack struct{ MaxPerCore *int }
			}
			if err := yaml.Unmarshal(changed, &got); err != nil {
				t.Fatal(err)
			}
			if got.Kind != "KubeProxyConfiguration" || got.Conntrack.MaxPerCore == nil || *got.Conntrack.MaxPerCore != 0 {
				t.Errorf("got %s", changed)
			}
		})
	}
}
