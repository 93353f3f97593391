package podnetwork

import "fmt"

// ConfigFolder is the folder with the configuration of network plugins on a host.
const ConfigFolder = "/etc/cni/net.d"

// Config returns the configuration of the CNI plugins for the Pods of a host, whose network is
// subnet.
func Config(subnet string) []byte {
	return fmt.Appendf(nil, `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "ipMasq": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "%s"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, subnet)
}
