"""Makes the golden files of the dataset room: python make.py

addresses.txt: IP addresses around the edges of all special-purpose networks that Python's ipaddress
knows, and whether each is a public unicast address.
trl.json: where TRL's prepare_multimodal_messages puts the images of a sample.
"""

import ipaddress
import json
import sys

import trl
from trl.data_utils import prepare_multimodal_messages


def addresses():
    networks = [
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128",
        "::ffff:0:0/96", "::ffff:8.8.8.8/128", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64",
        "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7",
        "fe80::/10", "fec0::/10", "ff00::/8",
    ]
    found = {}
    for network in map(ipaddress.ip_network, networks):
        for value in (int(network[0]) - 1, int(network[0]), int(network[-1]), int(network[-1]) + 1):
            if 0 <= value < 2**network.max_prefixlen:
                address = type(network[0])(value)
                found[address] = address.is_global and not address.is_multicast
    for text in ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450::1"]:
        found[ipaddress.ip_address(text)] = True
    return found


def samples():
    user = {"role": "user", "content": "What is it?"}
    answer = {"role": "assistant", "content": "A cat."}
    system = {"role": "system", "content": "Be brief."}
    asked = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}
    between = {"role": "user", "content": [
        {"type": "text", "text": "first"}, {"type": "image"}, {"type": "text", "text": "second"},
        {"type": "image"}]}
    own = {"role": "user", "content": [
        {"type": "image", "image": "own.jpg"}, {"type": "image"}, {"type": "text", "text": "?"}]}
    return [
        ([user, answer], []),
        ([user, answer], ["a.jpg"]),
        ([system, user, answer, user, answer], ["a.jpg", "b.jpg"]),
        ([system, asked, answer], ["a.jpg"]),
        ([asked, answer, between, answer], ["a.jpg", "b.jpg", "c.jpg"]),
        ([own, answer], ["a.jpg"]),
        ([asked, answer], []),
        ([asked, answer], ["a.jpg", "b.jpg"]),
        ([system, answer], ["a.jpg"]),
    ]


def main():
    with open("addresses.txt", "w") as file:
        for address, public in addresses().items():
            print(address, "public" if public else "special", file=file)
    cases = []
    for messages, images in samples():
        try:
            expected = prepare_multimodal_messages(messages, images)
        except ValueError:
            expected = None
        cases.append({"messages": messages, "images": images, "expected": expected})
    versions = {"trl": trl.__version__, "python": sys.version.split()[0]}
    with open("trl.json", "w") as file:
        json.dump({"versions": versions, "cases": cases}, file, indent=1)


main()
