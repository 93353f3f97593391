package rewrite

import (
	"net/url"
	"slices"

	"go.yaml.in/yaml/v3"
)

// defaultPort is that of a controlPlaneEndpoint without one, as in kubeadm.
const defaultPort = "6443"

// Kubeconfig replaces the servers of all clusters in a kubeconfig. The result is
// text itself when there is nothing to replace. spare are hosts that are left
// alone; nil spares none.
func (r Rules) Kubeconfig(text []byte, spare func(host string) bool) ([]byte, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	clusters := field(root, "clusters")
	if clusters == nil || clusters.Kind != yaml.SequenceNode {
		return text, nil
	}
	var edits []edit
	for _, one := range clusters.Content {
		edits = add(edits, field(field(one, "cluster"), "server"), func(server string) (string, bool) { return r.URL(server, spare) })
	}
	return replace(text, edits)
}

// Configuration replaces where a node of k3s or RKE2 joins, in its
// configuration.
func (r Rules) Configuration(text []byte) ([]byte, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	return replace(text, add(nil, field(root, "server"), r.Join))
}

// ClusterConfiguration replaces kubeadm's controlPlaneEndpoint.
func (r Rules) ClusterConfiguration(text []byte) ([]byte, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	return replace(text, add(nil, field(root, "controlPlaneEndpoint"), func(value string) (string, bool) {
		return r.hostPort(value, defaultPort)
	}))
}

// Servers are those of all clusters in a kubeconfig.
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
	for _, one := range clusters.Content {
		if server := field(field(one, "cluster"), "server"); server != nil {
			servers = append(servers, server.Value)
		}
	}
	return servers, nil
}

// Names reports whether a cluster in a kubeconfig is reached at the endpoint.
func (r Rules) Names(text []byte) (bool, error) {
	servers, err := Servers(text)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(servers, func(server string) bool {
		u, err := url.Parse(server)
		return err == nil && Normal(u.Host, httpsPort) == Normal(r.Endpoint(), "")
	}), nil
}

// add appends the edit of a scalar that has to be replaced. An alias stands for
// a scalar elsewhere, which is then not written plainly.
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
