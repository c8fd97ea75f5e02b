// A cluster of franz-go's kfake on loopback: prints its addresses, and ends when its standard input does.
//
// kfake BROKERS [KEY=VALUE...]: the settings are those of brokers.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	brokers, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	settings := map[string]string{}
	for _, setting := range os.Args[2:] {
		key, value, _ := strings.Cut(setting, "=")
		settings[key] = value
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(brokers),
		kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(1),
		kfake.BrokerConfigs(settings),
	)
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	io.Copy(io.Discard, os.Stdin)
}
