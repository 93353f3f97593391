package v1beta2_test

import "testing"

// recipient is a public key of age.
const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

func TestElementalClusterCreate(t *testing.T) {
	testCreations(t, "ElementalCluster", []creation{
		{name: "no spec"},
		{name: "empty spec", spec: `spec: {}`},
		{name: "blank host", spec: `spec: {controlPlaneEndpoint: {host: "", port: 6443}}`},
		{name: "port only", spec: `spec: {controlPlaneEndpoint: {port: 16443}}`},
		{name: "IPv4 host", spec: `spec: {controlPlaneEndpoint: {host: 10.0.0.1, port: 6443}}`},
		{name: "IPv6 host", spec: `spec: {controlPlaneEndpoint: {host: "fd00::1", port: 6443}}`},
		{name: "DNS host", spec: `spec: {controlPlaneEndpoint: {host: api.example.com}}`},
		{name: "external", spec: `spec: {controlPlaneEndpointPolicy: {type: External}}`},
		{name: "filled by the provider", spec: `spec: {controlPlaneEndpoint: {host: 10.0.0.1, port: 6443}, controlPlaneEndpointPolicy: {type: Host, hostRef: {name: a, chosenAt: "2026-01-01T00:00:00Z"}}}`},
		{name: "failure domain label", spec: `spec: {failureDomains: {hostLabel: example.com/rack}}`},
		{name: "snapshots by default", spec: `spec: {etcdSnapshots: {}}`},
		{name: "snapshots", spec: `spec: {etcdSnapshots: {schedule: {intervalSeconds: 300}, retention: {onHosts: 16}}}`},
		{name: "uploaded snapshots", spec: `spec: {etcdSnapshots: {retention: {offHosts: 500}, destination: {s3: {endpoint: "https://[fd00::1]:9000/", bucket: a.b-c, prefix: "a/b", region: eu-1, credentialsRef: {name: s}}}, recipients: [` + recipient + `]}}`},
		{name: "snapshots in a folder", spec: `spec: {etcdSnapshots: {destination: {folder: {path: /mnt/backups-1}}, recipients: [` + recipient + `]}}`},
		{name: "recorded snapshots", spec: `spec: {etcdSnapshots: {}, etcdSnapshotRecord: {request: {scheduledAt: "2026-01-01T00:00:00Z", hostName: a, askedAt: "2026-01-01T00:00:00Z"}}}`},
		{name: "adopted", spec: `spec: {origin: Adopted}`},
		{name: "adopted with an external endpoint", spec: `spec: {origin: Adopted, controlPlaneEndpoint: {host: api.example.com}, controlPlaneEndpointPolicy: {type: External}}`},

		{name: "adopted with another endpoint", spec: `spec: {origin: Adopted, controlPlaneEndpointPolicy: {type: Tunnel}}`, err: "keeps its endpoint"},
		{name: "adopted with a virtual endpoint", spec: `spec: {origin: Adopted, controlPlaneEndpointPolicy: {type: VIP, vip: {address: 10.0.0.9}}}`, err: "keeps its endpoint"},
		{name: "of an unknown origin", spec: `spec: {origin: Imported}`, err: `Unsupported value: "Imported"`},
		{name: "port too high", spec: `spec: {controlPlaneEndpoint: {port: 65536}}`, err: "should be less than or equal to 65535"},
		{name: "port negative", spec: `spec: {controlPlaneEndpoint: {port: -1}}`, err: "should be greater than or equal to 0"},
		{name: "port not a number", spec: `spec: {controlPlaneEndpoint: {port: https}}`, err: "must be of type integer"},
		{name: "host with scheme", spec: `spec: {controlPlaneEndpoint: {host: "https://api.example.com"}}`, err: "without scheme and port"},
		{name: "host with port", spec: `spec: {controlPlaneEndpoint: {host: "api.example.com:6443"}}`, err: "without scheme and port"},
		{name: "host with blanks", spec: `spec: {controlPlaneEndpoint: {host: "a b"}}`, err: "without scheme and port"},
		{name: "host too long", spec: `spec: {controlPlaneEndpoint: {host: ` + long(513) + `}}`, err: "Too long"},
		{name: "unknown type", spec: `spec: {controlPlaneEndpointPolicy: {type: LoadBalancer}}`, err: `Unsupported value: "LoadBalancer"`},
		{name: "external with a host", spec: `spec: {controlPlaneEndpointPolicy: {type: External, hostRef: {name: a, chosenAt: "2026-01-01T00:00:00Z"}}}`, err: "hostRef belongs to type Host"},
		{name: "nameless host", spec: `spec: {controlPlaneEndpointPolicy: {hostRef: {}}}`, err: "hostRef.name: Required value"},
		{name: "destination without recipients", spec: `spec: {etcdSnapshots: {destination: {s3: {endpoint: "https://s3.example.com", bucket: abc, credentialsRef: {name: s}}}}}`, err: "a destination needs recipients"},
		{name: "destination over http", spec: `spec: {etcdSnapshots: {destination: {s3: {endpoint: "http://s3.example.com", bucket: abc, credentialsRef: {name: s}}}, recipients: [` + recipient + `]}}`, err: "endpoint in body should match"},
		{name: "destination without credentials", spec: `spec: {etcdSnapshots: {destination: {s3: {endpoint: "https://s3.example.com", bucket: abc}}, recipients: [` + recipient + `]}}`, err: "credentialsRef"},
		{name: "bucket and folder", spec: `spec: {etcdSnapshots: {destination: {s3: {endpoint: "https://s3.example.com", bucket: abc, credentialsRef: {name: s}}, folder: {path: /mnt/a}}, recipients: [` + recipient + `]}}`, err: "either s3 or folder"},
		{name: "destination nowhere", spec: `spec: {etcdSnapshots: {destination: {}, recipients: [` + recipient + `]}}`, err: "either s3 or folder"},
		{name: "folder by a relative path", spec: `spec: {etcdSnapshots: {destination: {folder: {path: mnt/a}}, recipients: [` + recipient + `]}}`, err: "path in body should match"},
		{name: "folder with a path that goes up", spec: `spec: {etcdSnapshots: {destination: {folder: {path: /mnt/../etc}}, recipients: [` + recipient + `]}}`, err: "path in body should match"},
		{name: "folder through the manager", spec: `spec: {etcdSnapshots: {destination: {route: Manager, folder: {path: /mnt/a}}, recipients: [` + recipient + `]}}`, err: "route needs s3"},
		{name: "prefix that leaves the bucket", spec: `spec: {etcdSnapshots: {destination: {s3: {endpoint: "https://s3.example.com", bucket: abc, prefix: "/a", credentialsRef: {name: s}}}, recipients: [` + recipient + `]}}`, err: "prefix in body should match"},
		{name: "identity as a recipient", spec: `spec: {etcdSnapshots: {recipients: [AGE-SECRET-KEY-1QQQ]}}`, err: "recipients[0] in body should match"},
		{name: "no recipient", spec: `spec: {etcdSnapshots: {recipients: []}}`, err: "should have at least 1 items"},
		{name: "kept without destination", spec: `spec: {etcdSnapshots: {retention: {offHosts: 3}}}`, err: "retention.offHosts needs a destination"},
		{name: "snapshots too often", spec: `spec: {etcdSnapshots: {schedule: {intervalSeconds: 299}}}`, err: "should be greater than or equal to 300"},
		{name: "snapshots too seldom", spec: `spec: {etcdSnapshots: {schedule: {intervalSeconds: 604801}}}`, err: "should be less than or equal to 604800"},
		{name: "snapshots by cron", spec: `spec: {etcdSnapshots: {schedule: "0 * * * *"}}`, err: "must be of type object"},
		{name: "no snapshot kept", spec: `spec: {etcdSnapshots: {retention: {onHosts: 0}}}`, err: "should be greater than or equal to 1"},
		{name: "too many snapshots kept", spec: `spec: {etcdSnapshots: {retention: {onHosts: 17}}}`, err: "should be less than or equal to 16"},
		{name: "failure domain label blank", spec: `spec: {failureDomains: {hostLabel: ""}}`, err: "should be at least 1 chars long"},
		{name: "unknown field", spec: `spec: {controlPlaneEndpont: {host: a}}`, err: `unknown field "spec.controlPlaneEndpont"`},
	})
}

func TestOriginCantChange(t *testing.T) {
	testChanges(t, "ElementalCluster", []change{
		{name: "other fields", from: `spec: {origin: Adopted}`, to: `spec: {origin: Adopted, failureDomains: {hostLabel: a}}`},
		{name: "adopted later", from: `spec: {}`, to: `spec: {origin: Adopted}`, err: "origin can't change"},
		{name: "no longer adopted", from: `spec: {origin: Adopted}`, to: `spec: {}`, err: "origin can't change"},
		{name: "adopted instead", from: `spec: {origin: Bootstrapped}`, to: `spec: {origin: Adopted}`, err: "origin can't change"},
	})
}

func TestElementalClusterTemplateCreate(t *testing.T) {
	testCreations(t, "ElementalClusterTemplate", []creation{
		{name: "empty", spec: `spec: {template: {spec: {}}}`},
		{name: "complete", spec: `spec: {template: {metadata: {labels: {a: b}}, spec: {controlPlaneEndpointPolicy: {type: Host}, failureDomains: {hostLabel: a}, etcdSnapshots: {}}}}`},

		{name: "no spec", err: "spec: Required value"},
		{name: "no spec in the template", spec: `spec: {template: {}}`, err: "spec.template.spec: Required value"},
		{name: "host chosen", spec: `spec: {template: {spec: {controlPlaneEndpointPolicy: {hostRef: {name: a, chosenAt: "2026-01-01T00:00:00Z"}}}}}`, err: "hostRef is chosen per cluster"},
		{name: "snapshots recorded", spec: `spec: {template: {spec: {etcdSnapshotRecord: {}}}}`, err: "etcdSnapshotRecord is written per cluster"},
		{name: "port too high", spec: `spec: {template: {spec: {controlPlaneEndpoint: {port: 99999}}}}`, err: "should be less than or equal to 65535"},
	})
}
