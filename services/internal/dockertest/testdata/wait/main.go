// Wait runs in a container until it is killed.
package main

import "time"

func main() { time.Sleep(time.Hour) }
