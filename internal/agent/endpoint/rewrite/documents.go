package rewrite

import (
	"net/url"
	"slices"

	"go.yaml.in/yaml/v3"
)

// apiServerPort is the port of a controlPlaneEndpoint without a port, as in
// kubeadm.
const apiServerPort = "6443"

// Kubeconfig replaces the servers of all clusters in a kubeconfig, except those
// whose host isExempt returns true for; isExempt may be nil. It returns text
// itself if it names no former endpoint.
func (r Rules) Kubeconfig(text []byte, isExempt func(host string) bool) ([]byte, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	clusters := field(root, "clusters")
	if clusters == nil || clusters.Kind != yaml.SequenceNode {
		return text, nil
	}
	var edits []edit
	for _, cluster := range clusters.Content {
		edits = add(edits, field(field(cluster, "cluster"), "server"), func(server string) (string, bool) { return r.URL(server, isExempt) })
	}
	return replace(text, edits)
}

// Configuration replaces the URL at which a node of k3s or RKE2 joins, in its
// configuration file.
func (r Rules) Configuration(text []byte) ([]byte, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	return replace(text, add(nil, field(root, "server"), r.JoinURL))
}

// ClusterConfiguration replaces the controlPlaneEndpoint of kubeadm's
// ClusterConfiguration.
func (r Rules) ClusterConfiguration(text []byte) ([]byte, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	return replace(text, add(nil, field(root, "controlPlaneEndpoint"), func(value string) (string, bool) {
		return r.hostPort(value, apiServerPort)
	}))
}

// Servers returns the servers of all clusters in a kubeconfig.
func Servers(text []byte) ([]string, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	clusters := field(root, "clusters")
	if clusters == nil || clusters.Kind != yaml.SequenceNode {
		return nil, nil
	}
	var servers []string
	for _, cluster := range clusters.Content {
		if server := field(field(cluster, "cluster"), "server"); server != nil {
			servers = append(servers, server.Value)
		}
	}
	return servers, nil
}

// NamesEndpoint reports whether a cluster in a kubeconfig has the current
// endpoint as its server.
func (r Rules) NamesEndpoint(text []byte) (bool, error) {
	servers, err := Servers(text)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(servers, func(server string) bool {
		u, err := url.Parse(server)
		return err == nil && Normalize(u.Host, httpsPort) == Normalize(r.Endpoint(), "")
	}), nil
}

// add appends an edit if the replacement differs. An edit of an alias makes
// replace fail, because the scalar is elsewhere in the document.
func add(edits []edit, node *yaml.Node, replacement func(string) (string, bool)) []edit {
	if node == nil {
		return edits
	}
	value := node.Value
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		value = node.Alias.Value
	}
	if to, replaced := replacement(value); replaced {
		edits = append(edits, edit{node, to})
	}
	return edits
}
