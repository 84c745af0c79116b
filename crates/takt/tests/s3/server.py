"""A bucket for a test: moto's S3, which checks keys and signatures. Prints its port, a key and the
key's secret, and serves until its input ends."""

import json
import logging
import sys
import urllib.request

import boto3
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
at = f"http://127.0.0.1:{port}"
options = {
    "endpoint_url": at,
    "region_name": "us-east-1",
    "aws_access_key_id": "setup",
    "aws_secret_access_key": "setup",
}
boto3.client("s3", **options).create_bucket(Bucket="fleet")
iam = boto3.client("iam", **options)
iam.create_user(UserName="lab")
allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
iam.put_user_policy(UserName="lab", PolicyName="all", PolicyDocument=policy)
key = iam.create_access_key(UserName="lab")["AccessKey"]
# From here on requests without this key, or with a wrong signature, are refused.
text = {"Content-Type": "text/plain"}
urllib.request.urlopen(urllib.request.Request(f"{at}/moto-api/reset-auth", b"0", text, method="POST"))
print(port, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
sys.stdin.read()
