package node_test

import (
	"maps"
	"testing"
)

// Labels are set as the kubelet, others stay, and a Node that has them is not written.
func TestSetsLabels(t *testing.T) {
	c := newCluster(t)
	c.missing = 2
	c.providerID = "elemental://1"
	c.labels = map[string]string{"kubernetes.io/hostname": "worker-1", "topology.kubernetes.io/zone": "paris"}
	s, clock := setter(c.kubeconfig(t, "system:node:worker-1"))
	for range 2 {
		isSet, err := s.SetLabels(t.Context(), map[string]string{"topology.kubernetes.io/zone": "berlin", "topology.kubernetes.io/region": "de"})
		if err != nil || !isSet {
			t.Fatalf("set %t: %v", isSet, err)
		}
	}
	want := map[string]string{
		"kubernetes.io/hostname": "worker-1", "topology.kubernetes.io/zone": "berlin", "topology.kubernetes.io/region": "de",
	}
	if !maps.Equal(c.labels, want) || c.patches != 1 || c.providerID != "elemental://1" || clock.passed == 0 {
		t.Errorf("labels %v after %d patches, providerID %q", c.labels, c.patches, c.providerID)
	}
}

func TestLabelsOfAHostWithoutKubelet(t *testing.T) {
	s, _ := setter("/does/not/exist")
	if isSet, err := s.SetLabels(t.Context(), map[string]string{"a": "b"}); isSet || err != nil {
		t.Errorf("set %t: %v", isSet, err)
	}
}
